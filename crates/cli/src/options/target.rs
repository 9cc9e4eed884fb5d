//! Lists of process and thread ids on the command line.
//!
//! **Invariant:** an id is only read, never looked up: whether it is alive is for the
//! measurement to find out.

/// Reads one process or thread id.
///
/// # Errors
///
/// A sentence for the user: not a number, or not a possible id.
pub(crate) fn id(text: &str) -> Result<i32, String> {
    match text.trim().parse::<i32>() {
        Ok(id) if id > 0 => Ok(id),
        Ok(_) => Err("ids are greater than 0".to_owned()),
        Err(_) => Err("expected ids separated by commas, such as 1234,1250".to_owned()),
    }
}

/// Reads a list of CPUs (`0-3,6`) far enough to tell a typing mistake; it stays text,
/// because it is also the title of the report.
///
/// # Errors
///
/// A sentence for the user.
pub(crate) fn cpus(text: &str) -> Result<String, String> {
    let wrong = || "expected CPUs and ranges, such as 0-3,6".to_owned();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        if number(first)? > number(last)? {
            return Err(format!("the range {part} runs backwards"));
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positive() {
        assert_eq!(id("1234"), Ok(1234));
        assert!(id("0").is_err());
        assert!(id("-5").is_err());
        assert!(id("bash").is_err());
        assert!(id("99999999999").is_err());
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(cpus("0-3,6"), Ok("0-3,6".to_owned()));
        assert!(cpus("3-1").is_err());
        assert!(cpus("").is_err());
        assert!(cpus("0,,1").is_err());
        assert!(cpus("all").is_err());
    }
}
