//! `/version`: the Kubernetes version whose API is served.

use std::env::consts::{ARCH, OS};

use orlop_api::schema::builtin::kubernetes_version;
use serde_json::{Value, json};

/// Returns the answer to `/version`. Clients decide by its numbers, which are those of the data tables.
pub(crate) fn version() -> Value {
    let version = kubernetes_version();
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let previous = minor.parse::<u32>().map_or(0, |minor| minor.saturating_sub(1));
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("v{version}+orlop-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": previous.to_string(),
        "platform": format!("{}/{}", go_os(OS), go_architecture(ARCH)),
    })
}

/// Go's name of an operating system.
fn go_os(os: &str) -> &str {
    match os {
        "macos" => "darwin",
        other => other,
    }
}

/// Go's name of a processor architecture.
fn go_architecture(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_tables_and_names_the_platform_as_go_does() {
        let version = version();
        assert_eq!(version["minor"], kubernetes_version().split('.').nth(1).unwrap());
        assert_eq!(go_architecture("aarch64"), "arm64");
        assert_eq!(go_architecture("x86_64"), "amd64");
        assert!(version["platform"].as_str().unwrap().starts_with(go_os(OS)));
    }
}
