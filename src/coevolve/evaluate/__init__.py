"""Measuring what was learned: statistics, tables and figures. This file imports nothing."""
