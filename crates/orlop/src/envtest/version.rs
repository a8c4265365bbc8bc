//! `--version` of kube-apiserver: prints the version, prints all of it, or sets the one that is reported.

use anyhow::bail;
use orlop_api::schema::builtin::kubernetes_version;
use orlop_server::version::Version;

use super::flags::Flags;

/// Flag of `orlop serve`.
pub(super) const REPORTED: &str = "reported-version";

/// Returns the version without a suffix, `v1.37.1`. It is reported unless told otherwise, as some clients compare it with
/// their own (`kubectl --match-server-version`).
pub(super) fn plain() -> String {
    format!("v{}", kubernetes_version())
}

/// Returns the text to print if a version was asked for. `--version=vX.Y.Z…` becomes a flag of `orlop serve`.
pub(super) fn asked(flags: &mut Flags) -> anyhow::Result<Option<String>> {
    if !flags.has("version") {
        return Ok(None);
    }
    let value = flags.take("version");
    let default = Version::default();
    match value.as_deref() {
        None | Some("true" | "1" | "t" | "T" | "TRUE" | "True") => {
            Ok(Some(format!("Kubernetes {}", plain())))
        }
        Some("false" | "0" | "f" | "F" | "FALSE" | "False") => Ok(None),
        Some("raw") => Ok(Some(default.raw())),
        Some(version) if version.starts_with('v') => {
            flags.push(REPORTED, version.to_owned());
            Ok(None)
        }
        Some(other) => {
            bail!("invalid argument {other:?} for \"--version\" flag: write true, false, raw or vX.Y.Z")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn parse(argument: &str) -> Flags {
        Flags::parse([argument.into()].into_iter()).unwrap()
    }

    #[test]
    fn version_is_printed_or_set() {
        let plain = format!("Kubernetes v{}", kubernetes_version());
        for flag in ["--version", "--version=true", "--version=1"] {
            assert_eq!(asked(&mut parse(flag)).unwrap().as_deref(), Some(plain.as_str()), "{flag}");
        }
        let raw = asked(&mut parse("--version=raw")).unwrap().unwrap();
        assert!(raw.starts_with("version.Info{Major:\"1\", Minor:\""), "{raw}");
        assert!(raw.contains("GitVersion:\"v") && raw.ends_with("\"}"), "{raw}");
        for flag in ["--v=1", "--version=false"] {
            assert_eq!(asked(&mut parse(flag)).unwrap(), None, "{flag}");
        }
        let mut flags = parse("--version=v1.2.3-a");
        assert_eq!(asked(&mut flags).unwrap(), None);
        assert_eq!(flags.into_arguments().collect::<Vec<_>>(), ["--reported-version=v1.2.3-a"]);
        assert!(asked(&mut parse("--version=maybe")).unwrap_err().to_string().contains("--version"));
    }
}
