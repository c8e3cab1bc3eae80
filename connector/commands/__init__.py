"""What a person calls beside the protocol."""
