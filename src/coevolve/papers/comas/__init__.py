"""comas"""
