//! The prompt: history and completion.

use std::{path::PathBuf, time::Duration};

use rustyline::{
    Config, Context, Editor,
    completion::{Completer, Pair},
    error::ReadlineError,
    history::FileHistory,
};
use slate_client::Client;
use tokio::runtime::Runtime;

use crate::{
    commands::{self, COMMANDS},
    output::{self, Format},
};

/// Lines of history that are kept.
const HISTORY_MAX: usize = 1000;
/// Time that completion may wait for the server.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(rustyline::Helper, rustyline::Hinter, rustyline::Highlighter, rustyline::Validator)]
struct Helper<'a> {
    runtime: &'a Runtime,
    client: &'a Client,
}

impl Completer for Helper<'_> {
    type Candidate = Pair;

    /// Completes the command, then the collection.
    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let start = before.rfind(' ').map_or(0, |space| space + 1);
        let word = &before[start..];
        let names = match commands::split(&before[..start]).len() {
            0 => COMMANDS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            1 => self.collections(),
            _ => Vec::new(),
        };
        let matching = names.into_iter().filter(|name| name.starts_with(word));
        Ok((start, matching.map(|name| Pair { display: name.clone(), replacement: name }).collect()))
    }
}

impl Helper<'_> {
    fn collections(&self) -> Vec<String> {
        let listed = self
            .runtime
            .block_on(async { tokio::time::timeout(COMPLETION_TIMEOUT, self.client.collections()).await });
        match listed {
            Ok(Ok(collections)) => collections.into_iter().map(|collection| collection.name).collect(),
            _ => Vec::new(),
        }
    }
}

pub(crate) fn run(runtime: &Runtime, client: &Client, format: Format) -> anyhow::Result<()> {
    let config = Config::builder().max_history_size(HISTORY_MAX)?.auto_add_history(true).build();
    let mut editor: Editor<Helper<'_>, FileHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(Helper { runtime, client }));
    let history = history_file();
    if let Some(history) = &history {
        // The first time there is none.
        let _ = editor.load_history(history);
    }
    // Reported at once, not with the first command.
    match runtime.block_on(client.hello()) {
        Ok((_, store)) => println!("connected (store {store}); `help` lists commands"),
        Err(error) => eprintln!("{error}"),
    }
    loop {
        match editor.readline("slate> ") {
            Ok(line) if matches!(line.trim(), "exit" | "quit") => break,
            Ok(line) => match runtime.block_on(commands::run(client, &commands::split(&line))) {
                Ok(result) => print!("{}", output::render(&result, format)),
                Err(error) => eprintln!("{error:#}"),
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(history) = &history {
        editor.save_history(history)?;
    }
    Ok(())
}

fn history_file() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".slate_history"))
}

#[cfg(test)]
mod tests {
    use slate_client::Options;
    use slate_server::{Server, config};

    use super::*;

    #[test]
    fn commands_then_collections_are_completed() {
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::start(config::Config::for_test())).expect("a server");
        let client = Client::new(Options::new(server.address().to_string()));
        for name in ["accounts", "prospects"] {
            runtime.block_on(client.create_collection(name, Vec::new())).expect("create");
        }
        let helper = Helper { runtime: &runtime, client: &client };
        let history = FileHistory::new();
        let complete = |line: &str| {
            let (start, pairs) = helper.complete(line, line.len(), &Context::new(&history)).expect("pairs");
            (start, pairs.into_iter().map(|pair| pair.replacement).collect::<Vec<_>>())
        };
        assert_eq!(complete("cou"), (0, vec!["count".to_owned()]));
        assert_eq!(complete("count pro"), (6, vec!["prospects".to_owned()]));
        assert_eq!(complete("count accounts {"), (15, Vec::new()));
        runtime.block_on(server.stop());
    }
}
