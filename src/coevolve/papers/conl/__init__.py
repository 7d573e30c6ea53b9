"""conl"""
