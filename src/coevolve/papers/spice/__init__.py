"""spice"""
