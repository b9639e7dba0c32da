"""The version, for whoever is below the package itself."""

VERSION = "0.1.0"
