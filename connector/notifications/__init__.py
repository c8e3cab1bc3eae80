"""Notifications: a webhook is told of each snapshot that the task commits."""
