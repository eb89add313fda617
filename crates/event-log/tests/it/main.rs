//! The log on real PostgreSQL. Rows of the list of faults a log must survive are named by their number (T-..).

#[cfg(test)]
mod append;
#[cfg(test)]
mod embedded;
#[cfg(test)]
mod guards;
#[cfg(test)]
mod support;
#[cfg(test)]
mod verify;
