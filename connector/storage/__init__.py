"""Object stores and directories: access, credentials, errors."""
