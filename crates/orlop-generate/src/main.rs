//! `cargo xtask generate`: makes the data tables of the built-in kinds from one pinned Kubernetes version.
//!
//! The sources are the modules that Kubernetes publishes: discovery and OpenAPI documents of
//! `k8s.io/kubernetes`, and the Go types of the API modules, whose struct tags carry protobuf's field
//! numbers. The next Kubernetes version is a change of [`KUBERNETES`], one run, and a diff to read.
//!
//! `cargo xtask generate protobuf` makes the code of the gRPC APIs from their `.proto` files, which needs no
//! network.
//!
//! All of it is committed, so that every build has it and none can come out empty.

mod discovery;
mod enums;
mod go_types;
mod modules;
mod openapi;
mod operations;
mod protobuf;

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};

/// The version whose API is served, as `/version` reports it.
const KUBERNETES: &str = "1.37.1";

fn main() -> Result<()> {
    match env::args().nth(1).as_deref() {
        None => {
            generate_kinds()?;
            generate_protobuf()
        }
        Some("kinds") => generate_kinds(),
        Some("protobuf") => generate_protobuf(),
        Some(other) => bail!("{other:?} is neither kinds nor protobuf"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn generate_protobuf() -> Result<()> {
    let root = root();
    protobuf::files(&root)?.iter().try_for_each(|(path, content)| write(&root.join(path), content))
}

fn generate_kinds() -> Result<()> {
    let modules = modules::download(KUBERNETES)?;
    let api = root().join("crates/orlop-api/data");
    let server = root().join("crates/orlop-server/data");

    let documents = modules.kubernetes.join("api/openapi-spec/v3");
    let schemas = openapi::read(&documents)?;
    let published = modules.kubernetes.join("pkg/generated/openapi/zz_generated.openapi.go");
    let enums = enums::read(&published, schemas.type_names())?;
    let descriptions = schemas.descriptions_table(&enums) + &operations::descriptions(&documents)?;
    let go_types = go_types::read(&modules, schemas.type_names())?;
    write(&api.join("resources.tsv"), discovery::table(&modules.kubernetes.join("api/discovery"))?)?;
    write(&api.join("types.tsv"), schemas.types_table(&go_types))?;
    write(&api.join("go.tsv"), schemas.go_table(&go_types))?;
    write(&api.join("protobuf.tsv"), schemas.protobuf_table(&go_types))?;
    write(&server.join("descriptions.tsv.gz"), compress(&descriptions)?)?;
    write(&api.join("kubernetes-version"), format!("{KUBERNETES}\n"))
}

/// Writes one table and reports its size and if it changed.
fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let content = content.as_ref();
    let changed = fs::read(path).ok().as_deref() != Some(content);
    let shown: PathBuf = path.components().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect();
    println!(
        "{} {} ({} bytes)",
        if changed { "wrote    " } else { "unchanged" },
        shown.display(),
        content.len()
    );
    if changed {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Compresses without a time stamp or file name, so that the same table gives the same bytes.
fn compress(table: &str) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(table.as_bytes())?;
    Ok(encoder.finish()?)
}
