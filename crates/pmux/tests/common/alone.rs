//! One program at a time.

use std::fs::File;

/// Waits until no other program of these tests holds what `name` stands for; it is held until the file is dropped.
pub fn alone(name: &str) -> File {
    let path = std::env::temp_dir().join(name);
    // Another user may have made it.
    let file = File::open(&path).or_else(|_| File::create(&path)).unwrap();
    file.lock().unwrap();
    file
}
