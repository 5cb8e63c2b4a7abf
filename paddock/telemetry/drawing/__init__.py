"""Curves drawn, each from one `Plot`: as SVG, as PNG, in the characters of a terminal; and the pages they are on."""
