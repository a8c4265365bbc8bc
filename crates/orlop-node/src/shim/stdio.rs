//! Standard streams of a process: pipes, or a terminal.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    rc::Rc,
};

use rustix::{
    fs::{Mode, OFlags},
    pty::OpenptFlags,
    termios::Winsize,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, unix::AsyncFd},
    net::unix::pipe,
};

/// The master side of a terminal.
#[derive(Debug)]
pub(super) struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// Opens a terminal, and returns it with its slave side.
    fn open() -> io::Result<(Self, File)> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let slave = rustix::fs::open(
            name.as_c_str(),
            OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let flags = rustix::fs::fcntl_getfl(&master)?;
        rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "unsound for other types: an OwnedFd stays open and the same")]
        let master = AsyncFd::new(master)?;
        Ok((Self(master), slave.into()))
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = rustix::termios::tcsetwinsize(self.0.get_ref(), size);
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *buffer)?)) {
                // The slave side is closed.
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Ok(0);
                }
                Ok(read) => return read,
                Err(_would_block) => {}
            }
        }
    }

    async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                Ok(written) => bytes = &bytes[written?..],
                Err(_would_block) => {}
            }
        }
        Ok(())
    }
}

/// Standard input of a process.
#[derive(Debug)]
pub(super) enum Input {
    Pipe(pipe::Sender),
    Terminal(Rc<Terminal>),
}

impl Input {
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.write_all(bytes).await,
            Self::Terminal(terminal) => terminal.write(bytes).await,
        }
    }

    /// Ends the input. A terminal is told by its end-of-file character.
    pub(super) async fn end(self) {
        if let Self::Terminal(terminal) = self {
            const END_OF_TRANSMISSION: u8 = 4;
            let _ = terminal.write(&[END_OF_TRANSMISSION]).await;
        }
    }
}

/// Standard output or error of a process.
#[derive(Debug)]
pub(super) enum Output {
    Pipe(pipe::Receiver),
    Terminal(Rc<Terminal>),
}

impl Output {
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(terminal) => terminal.read(buffer).await,
        }
    }
}

/// Streams of a started process. A terminal has no separate error stream.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) stdin: Option<Input>,
    pub(super) stdout: Option<Output>,
    pub(super) stderr: Option<Output>,
    pub(super) terminal: Option<Rc<Terminal>>,
}

/// Starts a command, and returns it with its streams.
pub(super) fn spawn(command: &mut Command, stdin: bool, tty: bool) -> io::Result<(Child, Streams)> {
    if tty {
        let (terminal, slave) = Terminal::open()?;
        let terminal = Rc::new(terminal);
        let (input, error) = (slave.try_clone()?, slave.try_clone()?);
        let child = command.stdin(input).stdout(slave).stderr(error).spawn()?;
        let streams = Streams {
            stdin: stdin.then(|| Input::Terminal(terminal.clone())),
            stdout: Some(Output::Terminal(terminal.clone())),
            stderr: None,
            terminal: Some(terminal),
        };
        return Ok((child, streams));
    }
    command.stdin(if stdin { Stdio::piped() } else { Stdio::null() });
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let receiver = |fd: Option<OwnedFd>| fd.map(pipe::Receiver::from_owned_fd).transpose();
    let streams = Streams {
        stdin: match child.stdin.take() {
            Some(stdin) => Some(Input::Pipe(pipe::Sender::from_owned_fd(stdin.into())?)),
            None => None,
        },
        stdout: receiver(child.stdout.take().map(Into::into))?.map(Output::Pipe),
        stderr: receiver(child.stderr.take().map(Into::into))?.map(Output::Pipe),
        terminal: None,
    };
    Ok((child, streams))
}
