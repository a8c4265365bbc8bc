//! How the program is linked.
//!
//! The loader reads every relocation of a program at start, so that all of them stay in memory: more than a MiB. Packed
//! they are a hundredth of that, but only glibc 2.36 and later can read them, so they are packed where the program is
//! built for a machine like this one and this one can.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let native = env::var("TARGET").ok() == env::var("HOST").ok();
    if native && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library, if that is glibc.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
