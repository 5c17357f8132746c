"""Cleaning of public text in three levels: text and language, domain, personal information."""
