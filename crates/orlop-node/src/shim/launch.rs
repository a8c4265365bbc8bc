//! The stage between a monitor and a program: sets up ids, terminal and mounts, then becomes the program.

use std::{
    fs,
    io::{self, Write},
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixStream},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    process::{Gid, Signal, Uid, WaitOptions},
    thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags},
};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    config::{Config, Exec, read},
    frames::channel,
    monitor::exec_file,
    root,
};
use crate::{capabilities, cgroups, networks};

/// Becomes the program of the container in a folder, or that of its `exec`. Errors go to the monitor.
pub(super) fn run(folder: &Path, exec: Option<u32>) -> io::Result<()> {
    let mut config = Config::read(folder)?;
    let mut monitor = connect(&config.id, exec.unwrap_or(0))?;
    if let Err(error) = cgroups::enter(&config.cgroups) {
        monitor.write_all(format!("cannot enter the control group: {error}").as_bytes())?;
        return Err(error);
    }
    if exec.is_none() && config.holds.is_some() {
        // Tells the monitor that it has started.
        drop(monitor);
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        return hold();
    }
    let error = match exec {
        None => start(&config),
        Some(number) => {
            let path = exec_file(folder, number);
            let (exec, pid): (Exec, i32) = read(&path)?;
            let _ = fs::remove_file(path);
            (config.argv, config.tty) = (exec.argv, exec.tty);
            join(&config, pid)
        }
    };
    // Closed by a successful exec, which the monitor sees.
    monitor.write_all(error.to_string().as_bytes())?;
    Err(error)
}

/// Holds namespaces until it is ended, and collects processes in them that have lost their parent.
fn hold() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut children = signal(SignalKind::child())?;
        let mut end = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                _ = children.recv() => {
                    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
                }
                _ = end.recv() => return Ok(()),
            }
        }
    })
}

fn connect(id: &str, number: u32) -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(format!("orlop-node/{id}"))?;
    let mut stream = UnixStream::connect_addr(&address)?;
    let number = number.to_string();
    let length = u32::try_from(number.len()).map_err(io::Error::other)?;
    stream.write_all(&[&[channel::OUTCOME], &length.to_be_bytes()[..], number.as_bytes()].concat())?;
    Ok(stream)
}

/// Becomes the container's program. Returns only with an error.
fn start(config: &Config) -> io::Error {
    let prepared = || -> io::Result<()> {
        own_session(config.tty)?;
        enter_network(config)?;
        if let Some(namespaces) = &config.namespaces {
            #[expect(deprecated)]
            rustix::thread::unshare(UnshareFlags::NEWNS)?;
            rustix::system::sethostname(namespaces.hostname.as_bytes())?;
            root::enter(namespaces)?;
        }
        set_ids(config)?;
        // The container ends with its monitor, however that one ends.
        Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
    };
    match prepared() {
        Ok(()) => become_program(config),
        Err(error) => error,
    }
}

/// Becomes a program in the namespaces of a process of the container. Returns only with an error.
fn join(config: &Config, pid: i32) -> io::Error {
    let prepared = || -> io::Result<()> {
        own_session(config.tty)?;
        enter_network(config)?;
        if config.namespaces.is_some() {
            // The pid and host name namespaces are inherited from the monitor.
            let mounts = fs::File::open(format!("/proc/{pid}/ns/mnt"))?;
            rustix::thread::move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        }
        set_ids(config)?;
        Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
    };
    match prepared() {
        Ok(()) => become_program(config),
        Err(error) => error,
    }
}

/// Enters the network of the pod. The monitor stays outside: its socket is found by a name, which has meaning only in one
/// network namespace.
fn enter_network(config: &Config) -> io::Result<()> {
    config.network.as_deref().map_or(Ok(()), networks::enter)
}

fn own_session(tty: bool) -> io::Result<()> {
    let _ = rustix::process::setsid();
    if tty {
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    Ok(())
}

fn set_ids(config: &Config) -> io::Result<()> {
    let ids = &config.ids;
    let is_root = rustix::process::geteuid().is_root();
    if let Some(kept) = ids.capabilities.filter(|_| is_root) {
        capabilities::restrict_to(CapabilitySet::from_bits_truncate(kept))?;
    }
    if is_root && (ids.uid.is_some() || ids.gid.is_some() || !ids.groups.is_empty()) {
        let groups: Vec<Gid> = ids.groups.iter().copied().map(Gid::from_raw).collect();
        rustix::thread::set_thread_groups(&groups)?;
    }
    if let Some(gid) = ids.gid {
        let gid = Gid::from_raw(gid);
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    }
    if let Some(uid) = ids.uid {
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    if ids.no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
    }
    Ok(())
}

fn become_program(config: &Config) -> io::Error {
    let Some((name, arguments)) = config.argv.split_first() else {
        return io::Error::other("no command specified");
    };
    let cwd = if config.cwd.as_os_str().is_empty() { Path::new("/") } else { &config.cwd };
    let search = config.env.iter().rfind(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
    let program = match find(name, cwd, search) {
        Ok(program) => program,
        Err(error) => return io::Error::other(error),
    };
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env_clear().current_dir(cwd);
    command.envs(config.env.iter().map(|(name, value)| (name, value)));
    let error = command.exec();
    io::Error::other(format!("exec {name:?}: {error}"))
}

/// Finds a program as a shell does. Errors are worded as by Go's exec, which container runtimes pass on.
fn find(name: &str, cwd: &Path, search: &str) -> Result<PathBuf, String> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = cwd.join(name);
        return match path.metadata() {
            Err(_) => Err(format!("exec: {name:?}: stat {name}: no such file or directory")),
            Ok(_) if is_program(&path) => Ok(path),
            Ok(_) => Err(format!("exec: {name:?}: permission denied")),
        };
    }
    std::env::split_paths(search)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| format!("exec: {name:?}: executable file not found in $PATH"))
}
