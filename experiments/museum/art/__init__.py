"""Painters of exhibits: functions that draw a subject, and functions that render a drawing in a style.

May import nothing else of this project but errors.
"""
