//! `orlop envtest`: a folder of programs for controller-runtime's envtest.
//!
//! envtest starts `kube-apiserver` and `etcd` from the folder in KUBEBUILDER_ASSETS, with their own flags. In a folder
//! that `orlop envtest` has made both are links to this program, which looks at the name it was called by.

mod etcd;
mod flags;
mod kube_apiserver;
mod serving_pair;
mod version;

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::{Args, CommandFactory};
use flags::Flags;

const EXAMPLES: &str = "\
Examples:
  orlop envtest ./envtest
  KUBEBUILDER_ASSETS=$PWD/envtest go test ./...
      Any suite that uses controller-runtime's envtest, unchanged.";

/// Make a folder for KUBEBUILDER_ASSETS, so that envtest suites run on Orlop.
///
/// The folder has kube-apiserver and etcd, which are this program, and the kubectl on PATH. Objects live in the memory
/// of the API server and end with it. As in envtest, no controllers run, unless a suite asks for them:
/// testEnv.ControlPlane.GetAPIServer().Configure().Set("controllers", "*").
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Envtest {
    /// Folder to make. Links in it are replaced; anything else by these names is an error.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Envtest {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let own = std::env::current_exe().context("cannot find this program")?;
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let folder = self.folder.canonicalize().with_context(|| self.folder.display().to_string())?;
        for name in [kube_apiserver::NAME, etcd::NAME] {
            link(&own, &folder.join(name))?;
        }
        match find_on_path("kubectl", &folder) {
            Some(kubectl) => link(&kubectl, &folder.join("kubectl"))?,
            None => eprintln!("kubectl is not on PATH and is left out: suites that call it will fail"),
        }
        println!("Run a suite with:\n  KUBEBUILDER_ASSETS={} go test ./...", folder.display());
        Ok(())
    }
}

/// Links a program. An older link is replaced.
fn link(program: &Path, path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => fs::remove_file(path)?,
        Ok(_) => bail!("{} exists and is not a link: remove it, or choose another folder", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    }
    symlink(program, path).with_context(|| format!("cannot create {}", path.display()))
}

/// Returns the path of a program on PATH outside a folder.
fn find_on_path(program: &str, except: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    candidates.filter_map(|candidate| candidate.canonicalize().ok()).find(|found| !found.starts_with(except))
}

/// The name that this program was called by.
pub(crate) enum Called {
    /// By its own name.
    Orlop,
    /// By another, with this command line of its own.
    As(Vec<OsString>),
    /// By another, for help or its version, which was printed.
    Answered,
}

impl Called {
    pub(crate) fn of(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut arguments = arguments.into_iter();
        let program = arguments.next().map(PathBuf::from).unwrap_or_default();
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let translate = match name {
            kube_apiserver::NAME => kube_apiserver::translate,
            etcd::NAME => etcd::translate,
            _ => return Ok(Self::Orlop),
        };
        let mut flags = Flags::parse(arguments)?;
        if flags.has("help") || flags.has("h") {
            print!("{}", if name == etcd::NAME { etcd::help() } else { kube_apiserver::help() });
            return Ok(Self::Answered);
        }
        let version = match name {
            etcd::NAME => flags.has("version").then(etcd::version),
            _ => version::asked(&mut flags)?,
        };
        if let Some(version) = version {
            println!("{version}");
            return Ok(Self::Answered);
        }
        let own = translate(flags)?;
        Ok(Self::As(std::iter::once("orlop".to_owned()).chain(own).map(OsString::from).collect()))
    }
}

/// Returns the flags of a subcommand, a line each, as other programs list theirs.
fn help_of(subcommand: &str) -> String {
    let command = crate::Arguments::command();
    let arguments = command.find_subcommand(subcommand).into_iter().flat_map(clap::Command::get_arguments);
    let line = |argument: &clap::Arg| {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        argument.get_long().map(|name| format!("      --{name}  {help}\n"))
    };
    arguments.filter_map(line).collect()
}
