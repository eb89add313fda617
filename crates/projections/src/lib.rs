//! Read models: one pure fold per view, the runner that keeps them live, and their queries.
