//! Isolation of containers from the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::shim::{
    self,
    config::{Config, Mount, Namespaces, Started},
};

/// Isolation that a node is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces where the machine allows them.
    #[default]
    Auto,
    /// Namespaces; the node does not start without.
    Namespaces,
    /// Ordinary processes.
    None,
}

/// Isolation that a machine supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Support {
    /// Containers have mount, pid and host name namespaces.
    pub(crate) namespaces: bool,
    /// A user namespace is needed for them.
    pub(crate) user: bool,
}

impl Support {
    /// Tries namespaces with a program that ends at once. `Err` has the reason why there are none.
    pub(crate) fn probe(program: &Path, folder: &Path) -> Result<Self, String> {
        let user = !rustix::process::geteuid().is_root();
        let volume = folder.join("volume");
        let config = Config {
            id: format!("probe-{:x}", rand::random::<u128>()),
            argv: vec!["/bin/true".to_owned()],
            log: folder.join("log"),
            log_bytes_max: 1 << 20,
            namespaces: Some(Namespaces {
                hostname: "probe".to_owned(),
                user,
                layer: folder.join("layer"),
                // A volume where most pods have one, and the machine has nothing.
                mounts: vec![Mount {
                    source: volume.clone(),
                    target: PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount"),
                    read_only: true,
                }],
                ..Namespaces::default()
            }),
            ..Config::default()
        };
        let tried = || -> std::io::Result<String> {
            fs::create_dir_all(&volume)?;
            config.write(folder)?;
            let output = Command::new(program)
                .arg(shim::ARGUMENT)
                .arg(folder)
                .env_clear()
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let said = tried();
        let _ = fs::remove_dir_all(folder);
        match said {
            Ok(said) => match serde_json::from_str(&said) {
                Ok(Started::At(_)) => Ok(Self { namespaces: true, user }),
                Ok(Started::Error(reason)) => Err(reason),
                Err(_) => Err(said.trim().to_owned()),
            },
            Err(error) => Err(error.to_string()),
        }
    }
}
