//! Compiles channelz for the server, and the example kind for its example and test, without protoc.

use std::{env, error::Error, fs, path::PathBuf, process::Command};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=examples/nic/nic.proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut channelz = protox::Compiler::new(["proto"])?;
    channelz.include_imports(true).open_file("grpc/channelz/v1/channelz.proto")?;
    fs::write(out.join("channelz.bin"), channelz.file_descriptor_set().encode_to_vec())?;
    tonic_prost_build::configure().build_client(false).compile_fds(channelz.file_descriptor_set())?;

    // Cargo runs this for the library too, which does not include these two small files.
    let mut nic = protox::Compiler::new(["examples/nic", "proto"])?;
    nic.include_imports(true).open_file("nic.proto")?;
    fs::write(out.join("nic.bin"), nic.file_descriptor_set().encode_to_vec())?;
    tonic_prost_build::configure()
        .build_server(false)
        .extern_path(".nvidia.nvsentinel.v1alpha1", "::orlop_device_client::api")
        .compile_fds(nic.file_descriptor_set())?;

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
