"""Every figure of a report: its data, its drawing, its SVG."""
