"""What every process of tokiod needs from its host: log, secrets, service notifications, signals."""
