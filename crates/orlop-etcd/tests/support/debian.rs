//! Debian's etcd and etcdctl, unpacked into a cache without touching the system.
//!
//! The packages come from where this machine's own packages come from: its apt sources are read, the suite
//! is changed to one that has a recent etcd, and a private apt configuration downloads from there. Only the
//! standard library is used, and errors are sentences for the person who runs the tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The oldest suite whose etcd is recent enough.
const SUITE: &str = "trixie";
const PACKAGES: [&str; 2] = ["etcd-server", "etcd-client"];

/// The folder that holds `etcd` and `etcdctl`. The first call downloads them; later ones find them.
pub(crate) fn etcd() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set: there is no place for tools")?;
    let cache = std::env::var_os("ORLOP_TOOLS")
        .map_or_else(|| Path::new(&home).join(".cache/orlop-tools"), PathBuf::from);
    let folder = cache.join(format!("etcd-{SUITE}"));
    let programs = folder.join("root/usr/bin");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Tests run in many processes: one of them downloads, the others wait.
    let lock =
        fs::File::create(folder.join("lock")).map_err(|error| format!("{}: {error}", folder.display()))?;
    lock.lock().map_err(|error| format!("{}: {error}", folder.display()))?;
    if !["etcd", "etcdctl"].iter().all(|program| programs.join(program).exists()) {
        download(&folder).map_err(|error| {
            format!(
                "etcd could not be had from Debian ({error}). Put etcd and etcdctl into {}",
                programs.display()
            )
        })?;
    }
    Ok(programs)
}

fn download(folder: &Path) -> Result<(), String> {
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
        // There may be no other user to download as, and the folder is ours.
        "APT::Sandbox::User=root".to_owned(),
    ];
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(folder).arg("--quiet");
        for option in &options {
            command.args(["-o", option]);
        }
        run(command.args(arguments))
    };
    apt(&["update"])?;
    apt(&[&["download"][..], &PACKAGES].concat())?;
    let root = folder.join("root");
    for entry in fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(&root))?;
        }
    }
    Ok(())
}

/// This machine's Debian archive, with another suite.
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

/// A stanza as in `debian.sources`.
fn stanza_of(stanza: &str, codename: &str) -> Option<String> {
    let field = |name: &str| {
        stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    field("Suites")?.split_whitespace().find(|suite| *suite == codename)?;
    let signed = field("Signed-By").map(|keys| format!("Signed-By: {keys}\n")).unwrap_or_default();
    Some(format!("Types: deb\nURIs: {}\nSuites: {SUITE}\nComponents: main\n{signed}", field("URIs")?))
}

/// A line as in `sources.list`.
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

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
