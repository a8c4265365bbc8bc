//! `/version`: the Kubernetes version whose API is served.

use std::{
    env::consts::{ARCH, OS},
    str::FromStr,
};

use orlop_api::{go_text, schema::builtin::kubernetes_version};
use serde_json::{Value, json};

/// The version that is reported. Clients decide by its numbers, which are those of the data tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    git: String,
}

impl Default for Version {
    fn default() -> Self {
        Self { git: format!("v{}+orlop-{}", kubernetes_version(), env!("CARGO_PKG_VERSION")) }
    }
}

/// A version that cannot be reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// It is not a semantic version.
    #[error("could not parse {0:?} as a semantic version")]
    Malformed(String),
    /// Its numbers are those of another version.
    #[error("version {0:?} must match major/minor/patch of default version {1:?}")]
    Other(String, String),
}

impl FromStr for Version {
    type Err = VersionError;

    /// Parses a version to report in place of the default, such as `v1.37.1-rc.0+build`. Major, minor and patch must be
    /// those of the API that is served.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let (numbers, rest) = numbers.split_at(numbers.find(['-', '+']).unwrap_or(numbers.len()));
        let is_number = |part: &str| {
            part == "0" || (!part.starts_with('0') && part.parse::<u32>().is_ok() && !part.starts_with('+'))
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
        if numbers.split('.').count() != 3 || !numbers.split('.').all(is_number) || !rest.chars().all(allowed)
        {
            return Err(VersionError::Malformed(text.to_owned()));
        }
        if numbers != kubernetes_version() {
            return Err(VersionError::Other(text.to_owned(), Self::default().git));
        }
        Ok(Self { git: text.to_owned() })
    }
}

impl Version {
    /// Returns the answer to `/version`.
    pub(crate) fn to_json(&self) -> Value {
        let (major, minor) = numbers();
        let previous = minor.parse::<u32>().map_or(0, |minor| minor.saturating_sub(1));
        json!({
            "major": major,
            "minor": minor,
            "gitVersion": self.git,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "none",
            "compiler": "rustc",
            "emulationMajor": major,
            "emulationMinor": minor,
            "minCompatibilityMajor": major,
            "minCompatibilityMinor": previous.to_string(),
            "platform": platform(),
        })
    }

    /// Returns the version as `kube-apiserver --version=raw` prints it: a Go struct.
    pub fn raw(&self) -> String {
        let (major, minor) = numbers();
        let platform = platform();
        let fields = [
            ("Major", major),
            ("Minor", minor),
            ("EmulationMajor", ""),
            ("EmulationMinor", ""),
            ("MinCompatibilityMajor", ""),
            ("MinCompatibilityMinor", ""),
            ("GitVersion", &self.git),
            ("GitCommit", ""),
            ("GitTreeState", "clean"),
            ("BuildDate", "1970-01-01T00:00:00Z"),
            ("GoVersion", "none"),
            ("Compiler", "rustc"),
            ("Platform", &platform),
        ];
        let fields = fields.map(|(name, value)| format!("{name}:{}", go_text::quote(value)));
        format!("version.Info{{{}}}", fields.join(", "))
    }
}

/// Returns the version of the API, `1.37`.
pub(crate) fn minor() -> String {
    let (major, minor) = numbers();
    format!("{major}.{minor}")
}

/// Major and minor.
fn numbers() -> (&'static str, &'static str) {
    let mut numbers = kubernetes_version().split('.');
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

fn platform() -> String {
    format!("{}/{}", go_os(OS), go_architecture(ARCH))
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
        let version = Version::default().to_json();
        assert_eq!(version["minor"], kubernetes_version().split('.').nth(1).unwrap());
        assert_eq!(go_architecture("aarch64"), "arm64");
        assert_eq!(go_architecture("x86_64"), "amd64");
        assert!(version["platform"].as_str().unwrap().starts_with(go_os(OS)));
    }

    #[test]
    fn reported_version_has_the_same_numbers() {
        let own = kubernetes_version();
        for good in [format!("v{own}"), format!("v{own}-rc.0+build.1")] {
            assert_eq!(good.parse::<Version>().unwrap().to_json()["gitVersion"], good);
        }
        assert!(matches!("v0.0.1".parse::<Version>(), Err(VersionError::Other(..))));
        for bad in ["v1", "v1.2", "v1.2.x", "v1.02.3", "v1.2.3 ", "v1.2.3-\n"] {
            assert!(matches!(bad.parse::<Version>(), Err(VersionError::Malformed(_))), "{bad}");
        }
        let raw = Version::default().raw();
        assert!(raw.starts_with("version.Info{Major:\"1\", "), "{raw}");
    }
}
