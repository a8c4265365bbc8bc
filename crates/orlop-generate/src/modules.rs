//! The Go modules that Kubernetes publishes, from the module proxy.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// API modules whose Go types are read, by the first part of their OpenAPI names.
const API_MODULES: &[&str] = &["api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"];

/// Where the modules of one version lie.
pub(crate) struct Modules {
    /// `k8s.io/kubernetes`, which has the published discovery and OpenAPI documents.
    pub(crate) kubernetes: PathBuf,
    api: Vec<(&'static str, PathBuf)>,
}

/// One object of `go mod download -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    #[serde(default)]
    dir: PathBuf,
    #[serde(default)]
    error: String,
}

/// Downloads the modules of a version into Go's module cache.
pub(crate) fn download(version: &str) -> Result<Modules> {
    // The API modules of Kubernetes 1.37.1 are 0.37.1.
    let minor = version.split_once('.').map_or(version, |(_, minor)| minor);
    let kubernetes = fetch(&format!("k8s.io/kubernetes@v{version}"))?;
    let fetch_api = |name: &&'static str| Ok((*name, fetch(&format!("k8s.io/{name}@v0.{minor}"))?));
    Ok(Modules { kubernetes, api: API_MODULES.iter().map(fetch_api).collect::<Result<_>>()? })
}

fn fetch(module: &str) -> Result<PathBuf> {
    println!("downloading {module}");
    let output = Command::new("go")
        .args(["mod", "download", "-json", module])
        // Outside any module: Go would otherwise look for a go.mod of ours.
        .current_dir(std::env::temp_dir())
        .env("GOFLAGS", "-mod=mod")
        .output()
        .context("running `go` (install Go: only this chore needs it)")?;
    let download: Download = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{module}: {}", String::from_utf8_lossy(&output.stderr)))?;
    if !download.error.is_empty() {
        bail!("{module}: {}", download.error);
    }
    Ok(download.dir)
}

impl Modules {
    /// Returns the folder of a Go package by its OpenAPI name: `io.k8s.api.core.v1`.
    pub(crate) fn package(&self, openapi: &str) -> Option<PathBuf> {
        let mut parts = openapi.strip_prefix("io.k8s.")?.split('.');
        let name = parts.next()?;
        let (_, module) = self.api.iter().find(|(module, _)| *module == name)?;
        Some(parts.fold(module.clone(), |folder: PathBuf, part| Path::join(&folder, part)))
    }
}
