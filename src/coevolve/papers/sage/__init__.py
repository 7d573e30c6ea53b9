"""sage"""
