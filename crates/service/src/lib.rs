//! Composition and process: HTTP, run handling, reconciliation, configuration and the command line.
