"""What commands share: declaration, help, errors, output."""
