//! Images: names of programs on this machine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Registry and prefix of names without either, as `docker pull` has them.
const DEFAULT_PREFIXES: &[&str] = &["docker.io/library/", "docker.io/", "index.docker.io/library/"];
/// Prefix of images that are programs on the node's own PATH.
const LOCAL: &str = "local/";
/// Names of an image folder's manifest.
const MANIFESTS: &[&str] = &["image.yaml", "image.yml", "image.json"];
/// Names that an error lists.
const LISTED_MAX: usize = 20;

/// Images that a node knows.
#[derive(Clone, Debug, Default)]
pub struct Images {
    /// Programs by image name. An empty path is an image without an entrypoint: containers name their command.
    pub programs: BTreeMap<String, PathBuf>,
    /// Folder with a folder per image.
    pub folder: Option<PathBuf>,
}

/// An image to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Identity: a digest of what the name stands for.
    pub(crate) id: String,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) cmd: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workdir: PathBuf,
    /// Folder of files that lie over those of the machine.
    pub(crate) root: Option<PathBuf>,
    /// User of its programs, where the container names none. That of the node if the image names none either.
    pub(crate) user: Option<User>,
    pub(crate) size: u64,
}

/// User and group of an image's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// Group 0 if the image names none.
    pub(crate) gid: u32,
}

/// An image cannot be had.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ImageError {
    /// The name is malformed.
    #[error("couldn't parse image name {0:?}: invalid reference format")]
    InvalidName(String),
    /// No image has the name.
    #[error("image {name:?} is not known to this node; known are: {known}")]
    Unknown { name: String, known: String },
    /// The image's manifest cannot be used.
    #[error("{path}: {reason}")]
    Manifest { path: String, reason: String },
}

/// The manifest in an image's folder.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Manifest {
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    env: BTreeMap<String, String>,
    workdir: PathBuf,
    /// Folder whose files lie over those of the machine, relative to the image.
    root: Option<PathBuf>,
    user: Option<ManifestUser>,
}

/// A user as a manifest has it: 65532 or "65532:65532".
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ManifestUser {
    Number(u32),
    Text(String),
}

impl ManifestUser {
    /// Returns the user by numbers. A name says nothing on a machine that is not the image's, and whether it is root cannot
    /// be verified.
    fn parse(&self) -> Result<User, String> {
        let text = match self {
            Self::Number(uid) => return Ok(User { uid: *uid, gid: 0 }),
            Self::Text(text) => text,
        };
        let (uid, gid) = text.split_once(':').unwrap_or((text, "0"));
        match (uid.parse(), gid.parse()) {
            (Ok(uid), Ok(gid)) => Ok(User { uid, gid }),
            _ => Err(format!("user {text:?} is not UID or UID:GID in numbers")),
        }
    }
}

impl Images {
    /// Returns the image of a name.
    pub(crate) fn find(&self, name: &str) -> Result<Image, ImageError> {
        let candidates = candidates(name)?;
        for candidate in &candidates {
            if let Some(path) = self.programs.get(candidate) {
                return Ok(program(path));
            }
            if let Some(folder) = &self.folder {
                let folder = folder.join(candidate);
                if let Some(manifest) =
                    MANIFESTS.iter().map(|name| folder.join(name)).find(|path| path.is_file())
                {
                    return from_manifest(&folder, &manifest);
                }
            }
            if let Some(name) = candidate.strip_prefix(LOCAL)
                && let Some(path) = on_path(name)
            {
                return Ok(program(&path));
            }
        }
        Err(ImageError::Unknown { name: name.to_owned(), known: self.listed() })
    }

    /// Returns the names of known images.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.programs.keys().cloned().collect();
        if let Some(folder) = &self.folder {
            in_folder(folder, folder, &mut names);
        }
        names.sort();
        names.dedup();
        names
    }

    fn listed(&self) -> String {
        let mut names = self.names();
        let more = names.len().saturating_sub(LISTED_MAX);
        names.truncate(LISTED_MAX);
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        names.push(format!("{LOCAL}NAME for a program NAME on the node's PATH"));
        names.join(", ")
    }
}

/// Returns the names that an image may be known by: as written, then without tag or digest, then without the default
/// registry.
fn candidates(name: &str) -> Result<Vec<String>, ImageError> {
    let is_valid = !name.is_empty()
        && !name.split('/').any(|part| matches!(part, "" | "." | ".."))
        && name.bytes().all(|byte| byte.is_ascii_graphic())
        && !name.contains(['\\', '"', '$']);
    if !is_valid {
        return Err(ImageError::InvalidName(name.to_owned()));
    }
    let without_digest = name.split_once('@').map_or(name, |(name, _)| name);
    let colon = without_digest.rfind(':').filter(|colon| !without_digest[*colon..].contains('/'));
    let repository = colon.map_or(without_digest, |colon| &without_digest[..colon]);
    let mut names = vec![name.to_owned(), without_digest.to_owned(), repository.to_owned()];
    for prefix in DEFAULT_PREFIXES {
        let short: Vec<String> =
            names.iter().filter_map(|name| name.strip_prefix(prefix)).map(str::to_owned).collect();
        names.extend(short);
    }
    names.dedup();
    Ok(names)
}

fn program(path: &Path) -> Image {
    if path.as_os_str().is_empty() {
        return Image { id: digest(b""), ..Image::default() };
    }
    let size = fs::metadata(path).map_or(0, |found| found.len());
    let text = path.display().to_string();
    Image { id: digest(text.as_bytes()), entrypoint: vec![text], size, ..Image::default() }
}

fn from_manifest(folder: &Path, path: &Path) -> Result<Image, ImageError> {
    let fault = |reason: String| ImageError::Manifest { path: path.display().to_string(), reason };
    let text = fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    let manifest: Manifest = serde_saphyr::from_str(&text).map_err(|error| fault(error.to_string()))?;
    let mut entrypoint = manifest.entrypoint;
    if let Some(program) = entrypoint.first_mut()
        && program.contains('/')
    {
        // Relative to the image.
        *program = folder.join(&*program).display().to_string();
    }
    let workdir = match manifest.workdir.as_os_str().is_empty() {
        true => PathBuf::new(),
        false => folder.join(manifest.workdir),
    };
    let user = manifest.user.map(|user| user.parse()).transpose().map_err(fault)?;
    Ok(Image {
        id: digest(text.as_bytes()),
        entrypoint,
        cmd: manifest.cmd,
        env: manifest.env,
        workdir,
        root: manifest.root.map(|root| folder.join(root)),
        user,
        size: text.len() as u64,
    })
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Collects the names of images in a folder: paths of manifests.
fn in_folder(root: &Path, folder: &Path, names: &mut Vec<String>) {
    const NAMES_MAX: usize = 1000;
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        let path = entry.path();
        if names.len() >= NAMES_MAX {
            return;
        }
        if MANIFESTS.iter().any(|name| path.join(name).is_file()) {
            let name = path.strip_prefix(root).unwrap_or(&path);
            names.push(name.display().to_string());
        } else {
            in_folder(root, &path, names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_found_with_and_without_tag_and_registry() {
        let programs = BTreeMap::from([("web".to_owned(), PathBuf::from("/bin/web"))]);
        let images = Images { programs, folder: None };
        for name in ["web", "web:1.2", "docker.io/library/web:latest", "web@sha256:abc"] {
            assert_eq!(images.find(name).unwrap().entrypoint, ["/bin/web"], "{name}");
        }
        assert_eq!(
            images.find("other").unwrap_err().to_string(),
            "image \"other\" is not known to this node; known are: web, local/NAME for a program NAME on the node's PATH"
        );
        assert_eq!(images.find("a b"), Err(ImageError::InvalidName("a b".into())));
        assert!(images.find("local/sh").unwrap().entrypoint[0].ends_with("/sh"));
    }

    #[test]
    fn folder_of_images_has_a_manifest_each() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("example.org/app");
        fs::create_dir_all(&image).unwrap();
        fs::write(image.join("image.yaml"), "entrypoint: [./run]\ncmd: [a]\nenv: {X: y}\nworkdir: data\n")
            .unwrap();
        let images = Images { programs: BTreeMap::new(), folder: Some(folder.path().to_owned()) };
        let found = images.find("example.org/app:v1").unwrap();
        assert_eq!(found.entrypoint, [image.join("./run").display().to_string()]);
        assert_eq!((found.cmd, found.workdir), (vec!["a".to_owned()], image.join("data")));
        assert_eq!(images.names(), ["example.org/app"]);
        assert_eq!(found.user, None);
        for (text, uid, gid) in [("65532", 65532, 0), ("'65532'", 65532, 0), ("'10:20'", 10, 20)] {
            fs::write(image.join("image.yaml"), format!("user: {text}")).unwrap();
            assert_eq!(images.find("example.org/app").unwrap().user, Some(User { uid, gid }), "{text}");
        }
        for text in ["nobody", "'10:staff'", "-1", "''"] {
            fs::write(image.join("image.yaml"), format!("user: {text}")).unwrap();
            assert!(matches!(images.find("example.org/app"), Err(ImageError::Manifest { .. })), "{text}");
        }
        fs::write(image.join("image.yaml"), "entrypoin: []").unwrap();
        assert!(matches!(images.find("example.org/app"), Err(ImageError::Manifest { .. })));
    }
}
