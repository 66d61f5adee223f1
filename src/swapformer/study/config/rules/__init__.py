"""Rules of parts that cannot go together: each reads facts and names both sides and what would work."""
