//! Compiles the device API's `.proto` files to messages and a client, without protoc.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

/// The server owns the `.proto` files.
const PROTO: &str = "../orlop-device/proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}/nvidia");
    let mut compiler = protox::Compiler::new([PROTO])?;
    compiler.include_imports(true).open_file("nvidia/nvsentinel/v1alpha1/gpu.proto")?;
    let files = compiler.file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("device.bin"), files.encode_to_vec())?;
    // The server decodes all kinds by shared envelopes, so no server code is generated.
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    Ok(())
}
