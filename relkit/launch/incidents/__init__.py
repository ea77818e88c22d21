"""Somebody is told of an incident: a command of the site's gets the report."""
