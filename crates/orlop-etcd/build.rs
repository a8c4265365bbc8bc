//! Compiles the .proto files with protox, so that nobody needs protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const FILES: [&str; 6] =
        ["kv.proto", "watch.proto", "lease.proto", "cluster.proto", "maintenance.proto", "auth.proto"];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
