//! Programs from Debian's packages, unpacked into a cache without touching the system.
//!
//! The packages come from this machine's apt sources, with the suite changed to one that has recent versions and
//! a private apt configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{shell::run, tools};

/// Oldest suite whose packages are recent enough.
const SUITE: &str = "trixie";

/// Returns the directory with `programs` of these packages. The first call downloads them into the directory
/// `name` of the cache.
pub fn programs(name: &str, packages: &[&str], programs: &[&str]) -> Result<PathBuf, String> {
    let folder = tools::folder(&format!("{name}-{SUITE}"))?;
    let unpacked = folder.join("root/usr/bin");
    let _alone = tools::lock(&folder)?;
    if !programs.iter().all(|program| unpacked.join(program).exists()) {
        download(&folder, packages).map_err(|error| {
            format!(
                "{name} could not be had from Debian ({error}). Put {} into {}",
                programs.join(" and "),
                unpacked.display()
            )
        })?;
    }
    Ok(unpacked)
}

/// Returns the path of Debian's kubectl.
pub fn kubectl() -> Result<PathBuf, String> {
    Ok(programs("kubectl", &["kubectl"], &["kubectl"])?.join("kubectl"))
}

/// Returns the directory of Debian's etcd and etcdctl.
pub fn etcd() -> Result<PathBuf, String> {
    programs("etcd", &["etcd-server", "etcd-client"], &["etcd", "etcdctl"])
}

fn download(folder: &Path, packages: &[&str]) -> Result<(), String> {
    let sources = folder.join("debian.sources");
    write(&sources, &archive()?)?;
    for made in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(made)).map_err(|error| error.to_string())?;
    }
    let option = |name: &str, value: &Path| format!("{name}={}", value.display());
    let options = [
        option("Dir::Etc::sourcelist", &sources),
        option("Dir::Etc::sourceparts", Path::new("/dev/null")),
        option("Dir::State", &folder.join("state")),
        option("Dir::State::status", Path::new("/dev/null")),
        option("Dir::Cache", &folder.join("cache")),
        // There may be no `_apt` user to download as, and the directory is ours.
        "APT::Sandbox::User=root".to_owned(),
    ];
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(folder).arg("--quiet");
        for option in &options {
            command.args(["-o", option]);
        }
        run(command.args(arguments)).map(drop)
    };
    apt(&["update"])?;
    apt(&[&["download"][..], packages].concat())?;
    let root = folder.join("root");
    for entry in fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(&root))?;
        }
    }
    Ok(())
}

/// Returns this machine's Debian archive with another suite.
fn archive() -> Result<String, String> {
    let release =
        fs::read_to_string("/etc/os-release").map_err(|error| format!("/etc/os-release: {error}"))?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.ok_or("this is no Debian")?.trim_matches('"');
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    files.extend(fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|e| e.path()));
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let found = match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => text.split("\n\n").find_map(|stanza| stanza_of(stanza, codename)),
            Some("list") => text.lines().find_map(|line| line_of(line, codename)),
            _ => None,
        };
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Err(format!("no apt source of this machine has the suite {codename}"))
}

/// Parses a stanza of `debian.sources`.
fn stanza_of(stanza: &str, codename: &str) -> Option<String> {
    let field = |name: &str| {
        stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    field("Suites")?.split_whitespace().find(|suite| *suite == codename)?;
    let signed = field("Signed-By").map(|keys| format!("Signed-By: {keys}\n")).unwrap_or_default();
    Some(format!("Types: deb\nURIs: {}\nSuites: {SUITE}\nComponents: main\n{signed}", field("URIs")?))
}

/// Parses a line of `sources.list`.
fn line_of(line: &str, codename: &str) -> Option<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let suite = words.iter().position(|word| *word == codename)?;
    let address = words.get(suite.checked_sub(1)?)?;
    (words.first() == Some(&"deb"))
        .then(|| format!("Types: deb\nURIs: {address}\nSuites: {SUITE}\nComponents: main\n"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
