"""`python -m docs.site`: builds the site."""

import sys

from docs.site.build import main

sys.exit(main(sys.argv[1:]))
