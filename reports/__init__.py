"""Findings and merged stacks drawn for people: flame SVG, HTML page, DOT graph."""
