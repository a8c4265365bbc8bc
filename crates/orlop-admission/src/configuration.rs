//! The file of `--admission-control-config-file`: configurations of plugins, inline or in files of their own.

use std::path::{Path, PathBuf};

use orlop_api::decode;
use orlop_kinds::accessors::{list, present, text};
use serde_json::Value;

/// Bytes that a configuration file may have.
const BYTES_MAX: u64 = 1 << 20;
const API_VERSIONS: &[&str] =
    &["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];

/// A configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("unable to read admission control configuration from {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file is too large.
    #[error("the admission control configuration {0:?} is larger than {BYTES_MAX} bytes")]
    TooLarge(PathBuf),
    /// A file is not YAML.
    #[error("the admission control configuration {path:?} is not valid: {why}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// Reads configurations by plugin from an AdmissionConfiguration. Paths in it are relative to its folder.
pub fn read(path: &Path) -> Result<Vec<(String, Value)>, Error> {
    let file = read_yaml(path)?;
    let invalid = |why: String| Error::Invalid { path: path.to_owned(), why };
    if text(&file, "/kind") != "AdmissionConfiguration" || !API_VERSIONS.contains(&text(&file, "/apiVersion"))
    {
        return Err(invalid(format!(
            "no kind {:?} is registered for version {:?}",
            text(&file, "/kind"),
            text(&file, "/apiVersion")
        )));
    }
    let mut configurations = Vec::new();
    for plugin in list(&file, "/plugins") {
        let name = text(plugin, "/name");
        if name.is_empty() {
            return Err(invalid("plugins: a name is required".to_owned()));
        }
        let configuration = match (present(plugin, "/configuration"), text(plugin, "/path")) {
            (Some(configuration), _) => configuration.clone(),
            (None, "") => continue,
            (None, file) => read_yaml(&path.parent().unwrap_or(Path::new(".")).join(file))?,
        };
        configurations.push((name.to_owned(), configuration));
    }
    Ok(configurations)
}

fn read_yaml(path: &Path) -> Result<Value, Error> {
    let unreadable = |source| Error::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > BYTES_MAX {
        return Err(Error::TooLarge(path.to_owned()));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let decoded = decode::yaml(&bytes);
    let invalid = |error: &dyn ToString| Error::Invalid { path: path.to_owned(), why: error.to_string() };
    decoded.map(|decoded| decoded.value).map_err(|error| invalid(&error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configurations_are_inline_or_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("admission.yaml");
        std::fs::write(folder.path().join("limits.yaml"), "limits: 7").unwrap();
        std::fs::write(
            &main,
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n  \
             configuration: {a: 1}\n- name: EventRateLimit\n  path: limits.yaml\n",
        )
        .unwrap();
        let expected = [
            ("PodSecurity".to_owned(), json!({"a": 1})),
            ("EventRateLimit".to_owned(), json!({"limits": 7})),
        ];
        assert_eq!(read(&main).unwrap(), expected);
        std::fs::write(&main, "kind: Nonsense").unwrap();
        assert!(read(&main).unwrap_err().to_string().contains("no kind \"Nonsense\" is registered"));
    }
}
