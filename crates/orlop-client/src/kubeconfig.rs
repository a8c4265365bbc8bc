//! Kubeconfig files.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use crate::error::ConfigError;

/// Larger files are not kubeconfigs.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Fields of files, in clusters and in users.
const CLUSTER_FILES: &[&str] = &["certificate-authority"];
const USER_FILES: &[&str] = &["client-certificate", "client-key", "tokenFile"];

/// A kubeconfig. Fields that are not read here are preserved.
#[derive(Clone)]
pub struct Kubeconfig {
    document: Map<String, Value>,
    /// The first file that it was read from.
    pub(crate) path: PathBuf,
    /// All files that it was read from.
    pub(crate) files: Vec<PathBuf>,
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It holds secrets.
        f.debug_struct("Kubeconfig").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Kubeconfig {
    /// Reads the files of `KUBECONFIG`, or else `~/.kube/config`.
    pub fn read() -> Result<Self, ConfigError> {
        let named = env::var_os("KUBECONFIG").unwrap_or_default();
        let mut paths: Vec<PathBuf> =
            env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
        if paths.is_empty() {
            let home = env::home_dir().ok_or_else(|| ConfigError::Unusable("no home folder".to_owned()))?;
            paths.push(home.join(".kube/config"));
        }
        let mut merged: Option<Self> = None;
        for path in &paths {
            let read = Self::read_from(path)?;
            merged = Some(match merged {
                Some(merged) => merged.merge(read.document),
                None => read,
            });
        }
        if let Some(merged) = &mut merged {
            merged.files = paths;
        }
        merged.ok_or_else(|| ConfigError::Unusable("no kubeconfig".to_owned()))
    }

    /// Reads a file. Paths in it are relative to it.
    pub fn read_from(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let invalid = |reason: String| ConfigError::Invalid { path: path.to_owned(), reason };
        if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(invalid("the file is too large".to_owned()));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| invalid(format!("not a kubeconfig: {error}")))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let files = vec![path.to_owned()];
        let mut merged = Self { document: Map::new(), path: path.to_owned(), files };
        for document in documents {
            let Value::Object(mut document) = document else {
                return Err(invalid("not a kubeconfig".to_owned()));
            };
            make_absolute(&mut document, folder);
            merged = merged.merge(document);
        }
        Ok(merged)
    }

    /// Adds what another kubeconfig has besides. What is there stays.
    fn merge(mut self, other: Map<String, Value>) -> Self {
        for (field, value) in other {
            match (self.document.get_mut(&field), value) {
                (Some(Value::Array(known)), Value::Array(more)) => {
                    let is_new = |one: &Value| known.iter().all(|known| known["name"] != one["name"]);
                    let more: Vec<Value> = more.into_iter().filter(is_new).collect();
                    known.extend(more);
                }
                (Some(known), value) if known.is_null() || *known == "" => *known = value,
                (Some(_), _) => {}
                (None, value) => drop(self.document.insert(field, value)),
            }
        }
        self
    }

    /// Returns the whole document.
    pub fn to_value(&self) -> Value {
        Value::Object(self.document.clone())
    }

    /// Sets the address of all servers.
    pub fn set_server(&mut self, url: &str) {
        for cluster in items(&mut self.document, "clusters") {
            cluster["cluster"]["server"] = url.into();
        }
    }

    /// Reduces the kubeconfig to the current context, with a user of a client certificate. Returns none if there is no
    /// current context.
    pub fn with_user(mut self, name: &str, certificate_data: &str, key_data: &str) -> Option<Self> {
        let current = self.document.get("current-context")?.clone();
        let mut context = items(&mut self.document, "contexts").find(|one| one["name"] == current)?.clone();
        context["context"]["user"] = name.into();
        let cluster = context["context"]["cluster"].clone();
        if let Some(Value::Array(clusters)) = self.document.get_mut("clusters") {
            clusters.retain(|known| known["name"] == cluster);
        }
        let user = json!({"client-certificate-data": certificate_data, "client-key-data": key_data});
        self.document.insert("contexts".to_owned(), json!([context]));
        self.document.insert("users".to_owned(), json!([{"name": name, "user": user}]));
        Some(self)
    }
}

fn items<'a>(document: &'a mut Map<String, Value>, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let items = document.get_mut(field).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter(|item| item.is_object())
}

fn make_absolute(document: &mut Map<String, Value>, folder: &Path) {
    let absolute = |value: &mut Value| {
        if let Some(path) = value.as_str().filter(|path| !path.is_empty()) {
            *value = folder.join(path).to_string_lossy().into();
        }
    };
    for (list, entry, files) in [("clusters", "cluster", CLUSTER_FILES), ("users", "user", USER_FILES)] {
        for item in items(document, list) {
            for file in files {
                if let Some(value) = item.get_mut(entry).and_then(|entry| entry.get_mut(file)) {
                    absolute(value);
                }
            }
            // A command without a slash is searched for in PATH.
            let command = item.get_mut(entry).and_then(|entry| entry.pointer_mut("/exec/command"));
            if let Some(command) = command
                && command.as_str().is_some_and(|command| command.contains('/'))
            {
                absolute(command);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::Kubeconfig;

    const FIRST: &str = "
apiVersion: v1
kind: Config
current-context: one
preferences: {colors: true}
clusters: [{name: a, cluster: {server: 'https://a', certificate-authority: ca.crt}}]
contexts: [{name: one, context: {cluster: a, user: ann, namespace: team}}]
users: [{name: ann, user: {exec: {command: ./login, apiVersion: v1}}}]
";
    const SECOND: &str = "
current-context: two
clusters: [{name: a, cluster: {server: 'https://other'}}, {name: b, cluster: {server: 'https://b'}}]
contexts: null
";

    fn read(folder: &Path, name: &str, text: &str) -> Kubeconfig {
        fs::write(folder.join(name), text).unwrap();
        Kubeconfig::read_from(&folder.join(name)).unwrap()
    }

    #[test]
    fn paths_are_relative_to_the_file_and_unknown_fields_stay() {
        let folder = tempfile::tempdir().unwrap();
        let value = read(folder.path(), "config", FIRST).to_value();
        let ca = folder.path().join("ca.crt");
        assert_eq!(value["clusters"][0]["cluster"]["certificate-authority"], ca.to_str().unwrap());
        let command = folder.path().join("./login");
        assert_eq!(value["users"][0]["user"]["exec"]["command"], command.to_str().unwrap());
        assert_eq!(value["preferences"]["colors"], true);
    }

    #[test]
    fn first_file_wins_where_files_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let first = read(folder.path(), "first", FIRST);
        let second = read(folder.path(), "second", SECOND).document;
        let value = first.merge(second).to_value();
        assert_eq!(value["current-context"], "one");
        assert_eq!(value["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(value["clusters"][0]["cluster"]["server"], "https://a");
        assert_eq!(value["contexts"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn user_is_replaced_in_the_current_context_only() {
        let folder = tempfile::tempdir().unwrap();
        let both = FIRST.replace("contexts: [", "contexts: [{name: x, context: {cluster: z, user: y}}, ");
        let config = read(folder.path(), "config", &both).with_user("bob", "Y2VydA==", "a2V5").unwrap();
        let value = config.to_value();
        assert_eq!(value["contexts"].as_array().unwrap().len(), 1);
        assert_eq!(value["contexts"][0]["context"]["user"], "bob");
        assert_eq!(value["contexts"][0]["context"]["namespace"], "team");
        assert_eq!(value["users"][0]["user"]["client-key-data"], "a2V5");
    }

    #[test]
    fn text_that_is_no_kubeconfig_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x"), "just text").unwrap();
        assert!(Kubeconfig::read_from(&folder.path().join("x")).is_err());
        assert!(Kubeconfig::read_from(&folder.path().join("missing")).is_err());
    }
}
