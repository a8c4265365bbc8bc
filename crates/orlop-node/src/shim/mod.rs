//! The monitor of a container: a process that runs its program, writes its log and serves `attach` and `exec`.
//!
//! One monitor per container, as conmon and containerd's shim: the container outlives the node, and so do its log and its
//! exit code. The monitor is this program again, started with [`ARGUMENT`]; [`main`] must run before any thread is
//! started, since a process with threads cannot enter a user namespace.
//!
//! node → monitor (`monitor`: reaps, logs, listens) → launch (`launch`: ids, mounts, then becomes the program).
//!
//! The monitor adopts orphans of the program (it is a child subreaper), and kills whatever is left once the program has
//! ended: nothing of a container outlives it.

pub(crate) mod config;
mod folders;
pub(crate) mod frames;
mod launch;
mod layers;
pub(crate) mod log_writer;
mod monitor;
pub(crate) mod processes;
mod root;
mod stdio;

use std::{path::PathBuf, process::ExitCode};

use crate::networks;

/// First argument of this program when it is to be a monitor.
pub const ARGUMENT: &str = "container-monitor";
/// First argument of the stage between the monitor and the program.
const LAUNCH: &str = "container-launch";
/// Program to start for a further stage: the running one, even if its file was replaced.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Runs a container's monitor, or the remover of networks, if the command line asks for one. Returns `None` for every other command line.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let stage = arguments.next()?;
    let ended = if stage == ARGUMENT {
        monitor::run(&PathBuf::from(arguments.next()?))
    } else if stage == LAUNCH {
        let folder = PathBuf::from(arguments.next()?);
        let exec = arguments.next().and_then(|number| number.to_str()?.parse().ok());
        launch::run(&folder, exec)
    } else if stage == networks::REMOVER {
        networks::remove_at_end(arguments.next()?.to_str()?)
    } else {
        return None;
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(127)
        }
    })
}
