//! Rust code and descriptors of the gRPC APIs, from their `.proto` files.
//!
//! They are committed: compilers of `.proto` files are a sixth of the build of a program that otherwise does not need
//! them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use prost::Message as _;

/// The side of a service that code is generated for.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Both,
    Client,
    Server,
}

/// The `.proto` files of one API, and the files that are generated from them.
struct Api {
    /// Folders that imports are resolved in.
    includes: &'static [&'static str],
    /// Files to compile.
    files: &'static [&'static str],
    /// Folder of the generated files, one per protobuf package.
    output: &'static str,
    /// File name of the descriptors, which gRPC reflection serves.
    descriptors: Option<&'static str>,
    side: Side,
    /// True to generate `Bytes` for `bytes` fields.
    is_zero_copy: bool,
    /// Packages that another crate has the messages of.
    external: &'static [(&'static str, &'static str)],
}

const DEVICE_PROTO: &str = "crates/orlop-device/proto";

const APIS: &[Api] = &[
    Api {
        includes: &["crates/orlop-etcd/proto"],
        files: &[
            "kv.proto",
            "watch.proto",
            "lease.proto",
            "cluster.proto",
            "maintenance.proto",
            "auth.proto",
            "lock.proto",
            "election.proto",
        ],
        output: "crates/orlop-etcd/src/generated",
        descriptors: Some("etcd.bin"),
        side: Side::Both,
        is_zero_copy: true,
        external: &[],
    },
    Api {
        includes: &[DEVICE_PROTO],
        files: &["nvidia/nvsentinel/v1alpha1/gpu.proto"],
        output: "crates/orlop-device-client/src/generated",
        descriptors: Some("device.bin"),
        // The server decodes all kinds by shared envelopes.
        side: Side::Client,
        is_zero_copy: false,
        external: &[],
    },
    Api {
        includes: &[DEVICE_PROTO],
        files: &["grpc/channelz/v1/channelz.proto"],
        output: "crates/orlop-device/src/server/channelz/generated",
        descriptors: Some("channelz.bin"),
        side: Side::Server,
        is_zero_copy: false,
        external: &[],
    },
    Api {
        includes: &["crates/orlop-device/examples/nic", DEVICE_PROTO],
        files: &["nic.proto"],
        output: "crates/orlop-device/examples/nic/generated",
        descriptors: Some("nic.bin"),
        side: Side::Client,
        is_zero_copy: false,
        external: &[(".nvidia.nvsentinel.v1alpha1", "::orlop_device_client::api")],
    },
];

/// Returns all generated files by their path below `root`.
pub(crate) fn files(root: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for api in APIS {
        generate(root, api, &mut files).with_context(|| format!("compiling {:?}", api.files))?;
    }
    Ok(files)
}

fn generate(root: &Path, api: &Api, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let mut compiler = protox::Compiler::new(api.includes.iter().map(|include| root.join(include)))?;
    compiler.include_imports(true).open_files(api.files)?;
    let descriptors = compiler.file_descriptor_set();
    let output = Path::new(api.output);
    if let Some(name) = api.descriptors {
        files.insert(output.join(name), descriptors.encode_to_vec());
    }
    let folder = tempfile::tempdir()?;
    let mut builder = tonic_prost_build::configure()
        .out_dir(folder.path())
        .build_client(api.side != Side::Server)
        .build_server(api.side != Side::Client);
    if api.is_zero_copy {
        builder = builder.bytes(".");
    }
    for (package, path) in api.external {
        builder = builder.extern_path(*package, *path);
    }
    builder.compile_fds(descriptors)?;
    for entry in fs::read_dir(folder.path())? {
        let entry = entry?;
        files.insert(output.join(entry.file_name()), fs::read(entry.path())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_protobuf_code_is_generated_from_committed_proto_files() {
        let root = crate::root();
        for (path, content) in files(&root).expect("the .proto files compile") {
            let committed = fs::read(root.join(&path)).unwrap_or_default();
            assert!(
                committed == content,
                "{} is out of date: run `cargo xtask generate protobuf`",
                path.display()
            );
        }
    }
}
