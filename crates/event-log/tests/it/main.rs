//! The log on real PostgreSQL.

mod embedded;
