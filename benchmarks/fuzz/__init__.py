"""Hostile inputs and damaged stores: tables that the tests run through, and a random form that draws from them."""
