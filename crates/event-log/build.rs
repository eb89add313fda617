//! A new migration file must rebuild the crate: the files are compiled in.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
