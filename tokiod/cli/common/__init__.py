"""What commands share: options, errors, times, tables."""
