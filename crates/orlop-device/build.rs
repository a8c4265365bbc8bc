//! Records the source revision, its date and the compiler, for the build's metrics.

use std::{env, error::Error, process::Command};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    let output_of = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok().filter(|o| o.status.success());
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
    };
    println!("cargo::rustc-env=ORLOP_REVISION={}", output_of("git", &["rev-parse", "HEAD"]));
    println!("cargo::rustc-env=ORLOP_BUILD_DATE={}", output_of("git", &["log", "-1", "--format=%cI"]));
    println!("cargo::rustc-env=ORLOP_RUSTC={}", output_of(&env::var("RUSTC")?, &["--version"]));
    Ok(())
}
